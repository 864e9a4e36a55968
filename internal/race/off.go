//go:build !race

package race

// Enabled says whether the race detector is compiled in, which makes everything slower:
// what compares times with a bound is tested without it.
const Enabled = false
