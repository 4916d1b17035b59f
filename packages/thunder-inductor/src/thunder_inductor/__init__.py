"""Thunder with TorchInductor and TorchDynamo."""
