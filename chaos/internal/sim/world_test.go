package sim

// newTestWorld draws a world for tests that play it by themselves.
func (e *Engine) newTestWorld(cfg Config, src source) *World {
	return newWorld(cfg, &choices{source: src}, &e.pool, &e.Cov, false)
}
