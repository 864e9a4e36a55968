//go:build !race

package race

// Enabled reports whether the race detector is compiled in. It makes everything slower, so tests
// that compare times with a bound are left out with it.
const Enabled = false
