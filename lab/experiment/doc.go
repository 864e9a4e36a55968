// Package experiment repeats published measurements of the seeds, and those
// that Sluice is held to, on a lab of this machine with real programs: the
// controller and agents of this binary, Open vSwitch, iperf3, curl, haproxy.
//
// An experiment is one file with one [Experiment] value, listed in [All]. It
// gets an [Env] to measure with and returns a [Result]: tables with the
// published figures beside ours, plots, and the claims it was meant to test.
// [Run] writes the raw measurements as CSV while they come in, the plots as SVG
// and PNG, and one self-contained HTML report that names machine and scale.
package experiment
