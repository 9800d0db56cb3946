"""`python -m microfold`."""

try:
    from microfold.cli import main

    main()
except KeyboardInterrupt:  # before `main` is there to see it
    raise SystemExit(130) from None
