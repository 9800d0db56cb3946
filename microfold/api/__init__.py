"""Python interface: the functions that `import microfold` offers."""
