// Package integration has the tests of MobilityFirst on real switches.
package integration
