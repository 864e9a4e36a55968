// Package heartbeat is an independent witness of a machine that stands still. A test that
// finds something late may not take its own word for it that the machine was to blame: here
// another process beats on every core, and only what it has missed counts.
package heartbeat
