"""The page in the notebook: model, devices, settings, budget, runs and note as one value."""
