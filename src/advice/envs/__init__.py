"""What happens? Navigation tasks on MuJoCo, registered with Gymnasium."""


def register_tasks() -> None:
    """Register the task ids with Gymnasium."""
