"""`python -m microfold`."""

from microfold.cli import main

main()
