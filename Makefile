## make book                 build the site into _build/html and say how to open it
## make test                 run every test: library, notebooks, tools, site
## make lab                  open the notebooks in JupyterLab
## make notebooks            execute notebooks/src and store the outputs (ONLY=01 for one)
## make course               write course/: student and instructor copies, nbgrader, slides
## make parity               run the parity tests and store their numbers as book/parity.md
## make teach                bring the pages for teachers into agreement with the chapters
## make publish-to URL=...   set the repository's address everywhere it stands
## make clean                remove what was built; .venv stays
##
## The first call makes .venv and installs requirements.txt into it.
## PYTHON=/path/to/python3 chooses the Python, PIP_ARGS="..." is handed to pip install.

PYTHON ?= python3
PIP_ARGS ?=
PYTEST_ARGS ?=
LAB_ARGS ?=
ONLY ?=

VENV := .venv
VENV_PYTHON := $(VENV)/bin/python
STAMP := $(VENV)/installed

# Tiny tensors are slower on two threads; the second line keeps debugger noise out of outputs.
export OMP_NUM_THREADS := 1
export PYDEVD_DISABLE_FILE_VALIDATION := 1
export PIP_DISABLE_PIP_VERSION_CHECK := 1

.PHONY: help book test lab notebooks course parity teach publish-to clean reinstall

help:
	@sed -n 's/^## \{0,1\}//p' Makefile

# The stamp is written last, so an interrupted installation is taken up again, and it holds the
# folder's name: after a move, or without a working Python in .venv, the installation is renewed.
ifneq ($(shell $(VENV_PYTHON) -c "" 2>/dev/null && cat $(STAMP) 2>/dev/null),$(CURDIR))
$(STAMP): reinstall
endif

$(STAMP): requirements.txt requirements-no-deps.txt pyproject.toml
	@$(VENV_PYTHON) -c 'import pip, sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null || { \
	  command -v "$(PYTHON)" >/dev/null 2>&1 || { \
	    echo "Python is missing ($(PYTHON) was not found): install Python 3.11 or newer, or say where it is with PYTHON=/path/to/python3." >&2; exit 1; }; \
	  "$(PYTHON)" -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	    echo "Python is too old ($$("$(PYTHON)" --version 2>&1)): install Python 3.11 or newer, or say where it is with PYTHON=/path/to/python3." >&2; exit 1; }; \
	  "$(PYTHON)" -c 'import venv, ensurepip' 2>/dev/null || { \
	    echo "Python's venv module is missing: install it (on Debian and Ubuntu: sudo apt install python3-venv), then run make again." >&2; exit 1; }; \
	  echo "Making $(VENV) with $(PYTHON)"; \
	  "$(PYTHON)" -m venv --clear $(VENV); }
	@rm -f $(STAMP)
	$(VENV_PYTHON) -m pip install --quiet $(PIP_ARGS) -r requirements.txt
	$(VENV_PYTHON) -m pip install --quiet $(PIP_ARGS) --no-deps -r requirements-no-deps.txt
	$(VENV_PYTHON) -m pip install --quiet $(PIP_ARGS) --no-deps -e .
	@echo "$(CURDIR)" > $(STAMP)

# Starting from nothing keeps pages that no longer exist out of the site; it takes seconds, because
# the stored outputs are used and nothing is executed.
book: $(STAMP)
	@rm -rf _build/html _build/.doctrees
	$(VENV_PYTHON) $(VENV)/bin/jupyter-book build . -W --keep-going -n
	@$(VENV_PYTHON) -c 'from pathlib import Path as P; print("\nThe book is in", P("_build/html").resolve(), "\nOpen", P("_build/html/index.html").resolve().as_uri())'
	@echo "or run  $(VENV_PYTHON) -m http.server --directory _build/html  and open http://localhost:8000"

test: $(STAMP)
	$(VENV_PYTHON) -m pytest $(PYTEST_ARGS)

# Readers have no use for nbgrader's menus; "jupyter lab" in the folder of a course shows them.
lab: $(STAMP)
	JUPYTER_CONFIG_PATH="$(CURDIR)/tools/templates/lab$${JUPYTER_CONFIG_PATH:+:$$JUPYTER_CONFIG_PATH}" \
	  $(VENV_PYTHON) -m jupyterlab --LabApp.default_url=/lab/tree/notebooks $(LAB_ARGS)

notebooks: $(STAMP)
	$(VENV_PYTHON) tools/notebooks.py $(ONLY)

course: $(STAMP)
	$(VENV_PYTHON) tools/course.py $(ONLY)

parity: $(STAMP)
	$(VENV_PYTHON) tools/parity.py

teach: $(STAMP)
	$(VENV_PYTHON) tools/teaching.py

publish-to: $(STAMP)
	@$(VENV_PYTHON) tools/publish.py "$$URL"

clean:
	rm -rf _build build course .pytest_cache .ruff_cache .hypothesis encoder_lib.egg-info
	find . -name __pycache__ -not -path './$(VENV)/*' -prune -exec rm -rf {} +
