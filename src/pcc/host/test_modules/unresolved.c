/* An algorithm that wants a function that nobody has. */
#include <doca_pcc_dev.h>

void doca_pcc_dev_nobody_has_this(void);
void doca_pcc_dev_user_init(uint32_t* disable_event_bitmask) {
    *disable_event_bitmask = 0;
    doca_pcc_dev_nobody_has_this();
}
