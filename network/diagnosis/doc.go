// Package diagnosis has the words in which it is said what is wrong with a network:
// fault, place, remedy. What looks for faults are [network/linkprobe], for links, and
// the checks of this package, for what switches and hosts have been found to have.
//
// The package decides; it sends and reads nothing itself.
package diagnosis
