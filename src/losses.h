/*
 * losses.h
 *	  Leases that were lost: counted, and kept in shared memory for the report and for whoever asks.
 */
#ifndef HLOOM_LOSSES_H
#define HLOOM_LOSSES_H

#include "datatype/timestamp.h"
#include "hloom.h"

/* So much later what nobody waits for is looked at, in microseconds. */
#define HLOOM_REAP_INTERVAL USECS_PER_SEC

/* Bytes of shared memory for the latest losses, of all databases. */
#define HLOOM_LOSSES_SIZE (512 * 1024)

/* So much is taken out at once. */
#define HLOOM_LOSSES_AT_ONCE 256
#define HLOOM_LOSSES_TEXT (64 * 1024)

typedef enum HloomLossReason
{
	HLOOM_LOSS_EXPIRED,
	HLOOM_LOSS_TAKEN_AWAY
} HloomLossReason;

typedef struct HloomLoss
{
	const char *ns;				/* ns_len bytes */
	const char *key;			/* key_len bytes */
	int			ns_len;
	int			key_len;
	int64		fence;
	TimestampTz granted_at;
	TimestampTz expired_at;		/* the end of the lease; later than now when it was taken away */
	TimestampTz noticed_at;		/* set by losses.c */
	HloomLossReason reason;
	Oid			holder_role;
	int			holder_pid;		/* which may be gone, or a former server's */
} HloomLoss;

typedef void (*HloomLossVisit) (const HloomLoss *loss, void *arg);

/* Losses to be reported, oldest first.  Their texts are in here, too. */
typedef struct HloomLosses
{
	int			count;
	int64		dropped;		/* losses of all databases that nobody will hear of, newly */
	HloomLoss	loss[HLOOM_LOSSES_AT_ONCE];
	int			text_used;
	char text[	HLOOM_LOSSES_TEXT];
} HloomLosses;

extern Size hloom_losses_size(void);
extern void hloom_losses_start(void *memory, bool found);
extern void hloom_losses_add(Oid database, const HloomLoss *loss);
extern const char *hloom_losses_reason(HloomLossReason reason);
extern bool hloom_losses_are_many(void);
extern bool hloom_losses_are_any(void);
extern HloomLosses *hloom_losses_take(void);
extern void hloom_losses_visit(HloomLossVisit visit, void *arg);

#endif							/* HLOOM_LOSSES_H */
