// Package command is what the commands of both programs, sluice and sluice-lab, stand on:
// how they are run and end, what arguments and flags they take, how they print, and the
// documentation that is made of them.
package command
