// Package mobilityfirst has the tests of MobilityFirst on real switches.
package mobilityfirst
