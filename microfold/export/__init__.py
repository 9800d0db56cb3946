"""Packages for firmware projects, in the form that their build systems expect."""
