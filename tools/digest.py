"""The digest of an answer, for ``encoder_lib/checks/answers/NN.toml``.

    python tools/digest.py 5.1 1050624        a whole number or a word
    python tools/digest.py 3.2 0.665 3        a number, compared to 3 significant digits
"""

import ast
import sys

from encoder_lib.checks._answers import digest


def main(number: str, answer: str, digits: str = "0") -> None:
    """Print the digest of ``answer``; what is no Python value counts as a word."""
    try:
        value = ast.literal_eval(answer)
    except (ValueError, SyntaxError):
        value = answer
    print(digest(number, value, int(digits)))


if __name__ == "__main__":
    main(*sys.argv[1:])
