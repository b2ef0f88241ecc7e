"""The parts of `alerts`: one alert through time, a trigger's episodes, healing from Alertmanagers. Pure."""
