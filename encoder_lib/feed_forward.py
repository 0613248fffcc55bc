"""The position-wise feed-forward network. Built in chapter 06.

Axes: B batch, L length, D = d_model.
"""

from torch import nn

from encoder_lib.attention import xavier_linear_
from encoder_lib.embedding import require_dropout, require_features, require_positive

ACTIVATIONS = {"relu": nn.ReLU, "gelu": nn.GELU}


class FeedForward(nn.Module):
    """Two linear maps with a non-linearity between them, the same at every position.

    (B, L, D) -> (B, L, D). "gelu" is the exact form with erf, not the tanh approximation.
    Initialisation: Xavier-uniform weights, zero biases.

    Args:
        d_model: width D of input and output.
        d_ff: width of the hidden layer.
        dropout: rate at which hidden units are dropped in training mode.
        activation: "relu" (Vaswani et al. 2017, equation 2) or "gelu" (BERT).

    Raises: ValueError, TypeError for sizes below 1 or not int, dropout outside [0, 1), an
        unknown activation, x that is not (B, L, D).
    """

    def __init__(self, d_model, d_ff, dropout=0.0, activation="relu"):
        super().__init__()
        require_positive(d_model=d_model, d_ff=d_ff)
        require_dropout(dropout)
        if activation not in tuple(ACTIVATIONS):
            raise ValueError(f"activation must be one of {tuple(ACTIVATIONS)}, got {activation!r}")
        self.d_model = d_model
        self.w_1 = nn.Linear(d_model, d_ff)
        self.activation = ACTIVATIONS[activation]()
        self.dropout = nn.Dropout(dropout)
        self.w_2 = nn.Linear(d_ff, d_model)
        self.reset_parameters()

    def reset_parameters(self):
        """Draw the weights anew: Xavier-uniform, biases zero."""
        xavier_linear_(self.w_1)
        xavier_linear_(self.w_2)

    def forward(self, x):
        """x: (B, L, D). Returns (B, L, D)."""
        require_features(x, self.d_model)
        hidden = self.dropout(self.activation(self.w_1(x)))  # (B, L, d_ff)
        return self.w_2(hidden)                              # (B, L, D)
