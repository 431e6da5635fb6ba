"""The app: plans explored by eye. Every figure is planner's; nothing is computed here but places on a screen."""
