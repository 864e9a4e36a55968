// Package orders follows the orders of a controller to a mobile device, and reports their results.
//
// Orders are server-sent events of the controller's API. The device authenticates with its key, by
// a header that is valid only once.
package orders
