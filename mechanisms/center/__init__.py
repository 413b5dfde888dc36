"""Labels around a public center: the residual domain, its histogram, and the range that residuals are clipped to."""
