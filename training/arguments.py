"""The argument that training and evaluation share."""
import sys
from pathlib import Path

HELP = "the folder with train.tar and val.tar"


def add_data(parser):
    parser.add_argument("--data", type=Path, metavar="DIR", help=f"required: {HELP}")


def data_file(parser, args, name):
    """The path of one of its files; ends the program with one line where it is missing."""
    if args.data is None:
        sys.exit(f"{parser.prog}: --data DIR is required: {HELP}")
    path = args.data / name
    if not path.is_file():
        sys.exit(f"{parser.prog}: {path} does not exist; --data names {HELP}")
    return path
