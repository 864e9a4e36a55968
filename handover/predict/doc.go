// Package predict says, from a device's position, speed and heading and from the
// coverage of the attachment points, where the device will attach next, when,
// and from when on that place has to be prepared.
//
// It is pure: time comes in as an argument and nothing is kept but what the
// caller passes back in. Movement is taken to be straight at constant speed,
// which over the seconds that a set-up takes is what a report can tell.
package predict
