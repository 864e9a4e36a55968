// Package cli implements the commands of sluice-lab, which build networks on one machine and run
// demonstrations, experiments and soaks in them. The controller, the agents and the daemons in such
// a network are processes of the other program, sluice. Start reading at Main.
package cli
