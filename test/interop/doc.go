// Package interop tests services two by two: in each test both have a claim on one and the
// same packet, on real Open vSwitch, with the real programs. What becomes of such packets
// is decided in docs/topics/pipeline.md; start there.
package interop
