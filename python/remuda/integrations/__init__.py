"""Callbacks for training loops, and the plugin of pytest. Each module needs the package that it is named after."""
