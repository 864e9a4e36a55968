//go:build !race

package integration

const manyAtOnce = 1000
