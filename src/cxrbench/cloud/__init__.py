"""The SageMaker door: a cell as a training job. Imports no torch, and no SageMaker SDK.

``job`` says what is asked of AWS and checks it against the service's own model; ``bundle`` packs the code;
``entry`` is the script that SageMaker starts in its container.
"""
