// Package orders follows what a controller orders a mobile device to do, and
// reports what has become of it.
//
// Orders come as server-sent events of the controller's API. The device shows who
// it is by its key, with a header that is good once.
package orders
