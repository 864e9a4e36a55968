// Package predict predicts where and when a device will attach next, and when that place has to be
// prepared. It uses the device's position, speed and heading, and the coverage of the attachment
// points.
//
// The package is pure: the time is an argument, and the only state is the previous [Choice], which the
// caller passes back in. Movement is assumed to be straight and at constant speed: one report can tell
// no more about the seconds that a set-up takes.
//
// Start reading at [Coverage.Predict].
package predict
