"""`python -m planner`: the command line without its script."""

from planner.cli.main import main

if __name__ == "__main__":
    main(prog_name="planner")
