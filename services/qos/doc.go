// Package qos is the QoS service in the controller. It joins the parts of the service, which do not
// know each other: critical flows (package critical), classes of traffic (package classes) and
// further subflows (package subflows). They share the book of promises, that is, of the bandwidth
// that is reserved on links (package reserve). Start reading at Service.
package qos
