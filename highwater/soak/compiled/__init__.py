"""The broker and simulator as extension modules, compiled with mypyc into the user's cache, for long sweeps."""
