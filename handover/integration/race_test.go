//go:build race

package integration

// raceEnabled says that the race detector slows everything down.
const raceEnabled = true
