// Package ovsdb tests the client of switches' databases on Open vSwitch in a lab. The tests need
// root and are skipped without it.
package ovsdb
