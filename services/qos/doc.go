// Package qos is the QoS service in the controller. It joins the parts of the service,
// which do not know each other: critical flows (package bandwidth), classes of traffic
// (package latency) and further subflows (package subflow). They share the book of what is
// promised on links. Start reading at Service.
package qos
