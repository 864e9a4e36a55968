// Package plugin is QoS in the controller. It joins the parts of the service, which do
// not know each other: critical flows (package bandwidth) and classes of traffic
// (package latency). What they share is the book of what is promised on links.
package plugin
