// Package doctor tests what the doctor finds on a machine, on Open vSwitch in a lab. The tests need
// root and are skipped without it.
package doctor
