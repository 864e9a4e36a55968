// Package experiment repeats published measurements of the original systems, and those on which
// Sluice's claims rest, in a lab on this machine with real programs: the controller and agents of
// this binary, Open vSwitch, iperf3, curl, haproxy.
//
// An experiment is one file with one [Experiment] value, listed in [All]. It gets an [Env] to
// measure with and returns a [Result]: tables with the published figures beside ours, plots, and
// the claims that it tests. [Run] writes the raw measurements as CSV while they are taken, the
// plots as SVG and PNG, and one self-contained HTML report that names machine and scale.
//
// Start reading at Run, and then at the experiment of interest.
package experiment
