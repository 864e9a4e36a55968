// Package controller tests a whole controller within the test's process, on Open vSwitch in a lab.
// The tests need root and are skipped without it.
package controller
