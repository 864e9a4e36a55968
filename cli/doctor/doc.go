// Package doctor looks at a machine and says what it lacks for the controller,
// an agent or the lab, and what to do about it.
package doctor
