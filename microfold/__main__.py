"""Entry point of `python -m microfold`."""

try:
    from microfold.cli import main

    main()
except KeyboardInterrupt:  # during the imports, before `main` handles it
    raise SystemExit(130) from None
