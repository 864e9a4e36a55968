//go:build race

package integration

// manyAtOnce is fewer under the race detector, which makes the agents and the
// controller of these tests several times as slow.
const manyAtOnce = 250
