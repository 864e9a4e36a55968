// Package doctor checks what a machine lacks for its roles (the controller, an agent, a switch, a
// mobile device or the lab) and names remedies. Start reading at System in doctor.go.
package doctor
