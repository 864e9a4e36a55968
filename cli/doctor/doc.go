// Package doctor looks at a machine and says what it lacks for its roles: the
// controller, an agent, a switch, a mobile device or the lab, and what to do about it.
package doctor
