// Package rest is what the operations of the QoS service's parts have in common.
package rest
