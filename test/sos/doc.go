// Package sos holds the tests of SOS as a whole: a controller, agents as processes of their
// own, and unmodified TCP between ordinary hosts, on Open vSwitch in a lab. They need root
// and are skipped without it.
package sos
