"""A cell as a training job on SageMaker. Imports no torch and no SageMaker SDK."""
