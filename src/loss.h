/*
 * loss.h
 *	  Ends the running statement when a lease with on_lost "cancel" is lost.
 */
#ifndef HLOOM_LOSS_H
#define HLOOM_LOSS_H

#include "hloom.h"
#include "tracked.h"

extern void hloom_loss_watch(const HloomCall *call, const HloomTrackedId *id);
extern bool hloom_loss_watches(const HloomTrackedId *id);
extern void hloom_loss_unwatch(const HloomTrackedId *id);
extern void hloom_loss_begin(bool exempt);
extern void hloom_loss_end(bool exempt);
extern void hloom_loss_failed(void);

#endif							/* HLOOM_LOSS_H */
