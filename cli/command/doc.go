// Package command holds what the commands of both programs, sluice and sluice-lab, have in common:
// how they run and end, their arguments and flags, their output, and the documentation that is made
// from them. Start reading at Main in run.go.
package command
