/*
 * lease_form.h
 *	  The row of a call: what is asked for, and who asks.
 */
#ifndef HLOOM_LEASE_FORM_H
#define HLOOM_LEASE_FORM_H

#include "lease_page.h"

extern void hloom_form_row(HloomRow *row, const HloomCall *call);

#endif							/* HLOOM_LEASE_FORM_H */
